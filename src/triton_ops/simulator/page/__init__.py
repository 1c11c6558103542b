"""The simulator as one HTML file, which works without a network: the model, translated, and a script that draws."""
