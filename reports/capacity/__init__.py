"""Capacity planning: what was measured, the curve fitted to it, and the plan that follows from both."""
