"""What a call, a command and a new process cost the host."""
