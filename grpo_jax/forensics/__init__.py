"""What a run needs and costs, worked out without the hardware that it is for."""
