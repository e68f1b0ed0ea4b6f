"""Whether this checkout does what an older one did: names, commands, converted models, built models, their speed.

    git worktree add ../before COMMIT
    python -m benchmarks.unchanged ../before [--record FOLDER] [--quick] [--only PART ...] [--models GLOB ...]
    python -m benchmarks.unchanged ../before --speed [--models GLOB ...] [--rounds N]
    python -m benchmarks.unchanged ../before --sections rows attention [--rounds N]

The same code drives both checkouts, each in processes of its own: through softq's command line and public Python names,
with the models of `corpus`. What each gives is hashed and compared; texts are kept, so that two can be looked at with
`diff`. It ends with 1 where something differs that is held.

FOLDER keeps the models, the texts, and the older checkout's half, which is then measured once, a quarter of an hour of
one core (`--base-only` does no more than that). `--quick` has a few methods and models, and takes a part of a kept
half; `--keep` leaves the built folders there, too. SmolLM2 takes part with `--smollm2 FOLDER`, where
`python -m models.smollm2 FOLDER` built it.

Converted models are equal to the byte, those with deferred-log in their functions' names and inputs and, to the bit, in
what they compute. Of built models the outputs and the manifests are held, and for other processors than this one the
objects; other files' bytes are compared and told. `--speed` times built models of both in one process, `--sections`
runs sections of each checkout's own benchmarks.cpu in turns.
"""
