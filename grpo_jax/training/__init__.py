"""From a configuration to a trained policy: recipes, collection, evaluation and the loop."""
