"""Answers to turns, taken elsewhere than where they were asked for."""
