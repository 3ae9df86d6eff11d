"""Ready-made configurations; ``base.py`` lists every key."""
