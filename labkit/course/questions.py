"""What each "why?" of the notebooks asks."""

from __future__ import annotations

from collections.abc import Mapping

QUESTIONS: Mapping[str, str] = {
    "0.1": "what would go wrong with the attempt in the key?",
    "1.1": "why does no arrow lead out of succeeded?",
    "1.2": "what would a model do if a doubtful operation were left out?",
    "2.1": "why is reading the row after the UPDATE no answer?",
    "2.2": "what must a worker do after it got False?",
    "3.1": "what goes wrong if the new token is read after the commit?",
    "3.2": "why does finish not ask whether the lease has run out?",
    "4.1": "which half of a checkpoint would you rather lose?",
    "4.2": "which two crossings look alike, and what follows from that?",
    "5.1": "what would a key made of the request's body swallow?",
    "5.2": "what could change after your probe?",
    "6.1": "after which answer of the query is a person asked, and why?",
    "6.2": "why is an agent that asks a person here not badly written?",
    "7.1": "why does a spent budget not turn an unknown outcome into a failure?",
    "7.2": "who else, beside a crash, makes a loop forget?",
    "8.1": "what if the message were written first, in the same transaction?",
    "8.2": "can a message come twice, published in its mark's transaction?",
    "9.1": "why does the mail stand on the list, with None as its request?",
    "9.2": "what would be wrong with the key of the operation that is undone?",
    "10.1a": "when is a resend under the same key not safe any more?",
    "10.1b": 'why does "not found" not permit a resend?',
    "10.1c": "which of your runs ask a person, and could any code do better?",
    "10.1": "the failure, the gap, and the line that closed it",
    "10.2": "three to ten sentences",
    "10.3": "why must the law look into the ledger?",
}
"""By number, in the words of the notebook's cell."""

TITLES: Mapping[str, str] = {"10.1": "your failure cases", "10.2": "the trade-off"}
"""Of what is asked beside the exercises."""
