"""Telling people what became of their jobs: what is worth a notice, and the channels it goes
through.
"""
