"""What `make site` adds to the pages of `docs`: files of the repository, and references made from the code."""
