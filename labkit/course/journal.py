"""Predictions beside observations."""

from __future__ import annotations


def compare(prediction: object, observed: object) -> None:
    """Print a prediction beside what was observed.

    Args:
        prediction: what the student wrote; None stands for "none yet".
        observed: what the run came to.
    """
    if prediction is None:
        print(f"no prediction yet; observed: {observed}")
        return
    mark = "as predicted" if str(prediction).strip().lower() == str(observed).strip().lower() else "a surprise"
    print(f"predicted: {prediction}; observed: {observed}; {mark}")
