"""The web console: pages for people, rendered here, under the path of the settings."""
