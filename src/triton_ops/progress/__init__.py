"""What a run tells while it goes on, and the progress bar that shows it."""
