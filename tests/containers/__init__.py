"""Ballast's image and docker-compose.yml in a real container engine: `make test-containers`."""
