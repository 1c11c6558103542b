"""What compile modes and changing sizes cost inside `torch.compile`."""
