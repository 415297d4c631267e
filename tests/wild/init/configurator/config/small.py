# a smaller job
batch_size = 24
accumulation_steps = 1
