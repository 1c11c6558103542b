"""What faults, kills, hostile files and many processes do to a tune and its files."""
