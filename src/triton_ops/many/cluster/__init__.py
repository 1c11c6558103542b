"""Problems measured by actors of Ray, on any number of hosts."""
