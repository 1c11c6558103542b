"""What a call, a import and a new process cost the host."""
