"""Readers that turn raw files into arrays, one module for each source of data."""
