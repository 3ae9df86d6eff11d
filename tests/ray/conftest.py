"""Clusters of these tests ask for a token of their own; Ray would leave one in the home folder, for all later ones."""

import os
import secrets

os.environ.setdefault("RAY_AUTH_MODE", "token")
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
