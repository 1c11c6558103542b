"""Run logs, quarantines and records of earlier runs, and how a later run uses them."""
