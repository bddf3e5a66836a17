"""The image, docker-compose.yml and the chart in a real container engine: make test-containers."""
