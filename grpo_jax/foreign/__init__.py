"""Problems that come with their own judge: libraries that data and verifiers read, imported only when asked for."""
