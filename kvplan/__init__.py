"""How many long-lived AI agents fit on this hardware with this model, for how long, at what risk, and why.

The data flows one way: a config becomes layers, layers a ledger of integer bytes, the ledger a placement and an
engine's own units, those a capacity, and a capacity a plan. `kvplan.plan.plan()` is the whole of it as a function.
"""

__version__ = "0.1.0"
