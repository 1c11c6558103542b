"""Tests of the server of the Model Context Protocol."""
