"""The status page's own files: served as they are, without anything about the cluster in them."""
