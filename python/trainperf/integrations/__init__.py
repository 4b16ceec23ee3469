"""Callbacks for the frameworks that people train with."""
