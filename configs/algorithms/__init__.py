"""Published settings of the objective, for configurations to put over their own."""
