"""HTTP on both sides: the server's protocol and bounds, and questions to a server."""
