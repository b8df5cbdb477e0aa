"""Deterministic simulation of the production code (faults.md 5).

Three stacks. SHORT (`short`): the runner's machine, driver and state file on a simulated disk,
with a scripted peer that holds the keys and may lie. FULL (`full`): a runner node and a
controller node, made of the product's own shells, links, channels, cores and codecs, over a
simulated network with a hostile relay, on two machines with clocks of their own. One thread,
virtual time, no sleep. RUNS (`runs`): a host of durable runs, made of the product's store,
journal, coordinator and planner, and the world outside on which it works. They are judged by
`invariants` and by `runs.judge`, which read wire, disk and ledger.

    seed ─▶ draws (named streams, written down) ─▶ profile (which trouble exists) ─▶ storm
      ─▶ heal ─▶ quiet ─▶ audit ─▶ outcome ─▶ on failure: minimised tape, story, replay line

`./dev simulate` is the way in; `--list` says what there is.

How a feature joins: write `options/<feature>.py` with a `SHORT`, `FULL` or `RUNS` `Option` (any
may be missing) and append both in `registry`. An option brings

- `families`: kinds of trouble, each drawn per seed (append only: earlier draws must not move);
- `ops`: steps, each with a weight (0 while it cannot happen) and what it does, drawing from
  `world.draws.stream("workload" | "peer" | "net" | "disk" | "clock" | "program")`;
- `commands`: what a controller may ask for now; `begin`: what is drawn for a whole history
  (`world.profile.facts` is printed); `audit`: what must hold when a history is over;
- `sometimes`: facts that a batch must have seen (`world.seen.add(...)`).

A checker raises `Violation("I<n>", words)` from where it can see the breach: an image of the
disk (`oracle.published`, add members to `image.Image`), an order that left (`short/orders`), a
message on the wire (`full/observers`). Draw 0 is always the calmest outcome. Then plant a bug
for it in `planted/` and see it die.
"""
