"""Reports of runs as single HTML files that work offline."""
