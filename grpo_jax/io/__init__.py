"""What a run leaves on disk and on the screen: its folder, metrics, checkpoints, plots and progress."""
