"""The policy: architecture descriptions, layers and a functional decoder."""
