"""Programs with one mistake each, which the explorer must find; `python -m tests.seeded_bugs` prints them all."""

from .bug import Bug
from .claims import BUGS as CLAIMS
from .effects import BUGS as EFFECTS
from .keys import BUGS as KEYS
from .leases import BUGS as LEASES
from .messages import BUGS as MESSAGES
from .relays import BUGS as RELAYS

BUGS: tuple[Bug, ...] = (*CLAIMS, *LEASES, *EFFECTS, *KEYS, *MESSAGES, *RELAYS)
