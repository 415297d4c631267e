// What a training step does beside its products of matrices. One thread for each number that is written, but for the loss.
//
// Numbers lie in memory as STORED and are computed with as float; LOAD and STORE convert. What stands in front of this
// file defines these, KERNEL, THREAD (the number of the thread that runs) and u8, u16, u32, u64: for a GPU by
// `source.rs`; tests compile the same file as C. So it is C, too.

// Every patch of every crop becomes a row of its own.
KERNEL gather_patches(const STORED *crops, STORED *patches, u64 count, u32 crop_side, u32 patch_side, u32 step, u32 colours)
{
    u64 index = THREAD;
    if (index >= count)
        return;
    u64 per_side = (crop_side - patch_side) / step + 1;
    u64 patch_row = (u64)patch_side * colours;
    u64 along = index % patch_row;
    u64 rest = index / patch_row;
    u64 row = rest % patch_side;
    rest /= patch_side;
    u64 patch = rest % (per_side * per_side);
    u64 crop = rest / (per_side * per_side);
    u64 top = patch / per_side * step + row;
    u64 left = patch % per_side * step * colours + along;
    patches[index] = crops[(crop * crop_side + top) * crop_side * colours + left];
}

// Every row becomes the biases, for a product to be added to.
KERNEL spread_biases(const STORED *biases, STORED *rows, u64 count, u32 columns)
{
    u64 index = THREAD;
    if (index < count)
        rows[index] = biases[index % columns];
}

// Negative values become zero.
KERNEL rectify(STORED *values, u64 count)
{
    u64 index = THREAD;
    if (index < count)
        values[index] = STORE(fmaxf(LOAD(values[index]), 0.0f));
}

// The gradient is zero where a rectified value is.
KERNEL mask_rectified(STORED *gradient, const STORED *values, u64 count)
{
    u64 index = THREAD;
    if (index < count && LOAD(values[index]) == 0.0f)
        gradient[index] = STORE(0.0f);
}

// One thread for each sample: its cross-entropy loss, and the gradient of the mean loss times the loss scale.
KERNEL cross_entropy(const STORED *logits, const u8 *labels, STORED *gradient, float *losses, u64 samples, u32 classes, float share)
{
    u64 sample = THREAD;
    if (sample >= samples)
        return;
    const STORED *row = logits + sample * classes;
    u32 label = labels[sample];
    float largest = LOAD(row[0]);
    for (u32 class_ = 1; class_ < classes; class_++)
        largest = fmaxf(largest, LOAD(row[class_]));
    float sum = 0.0f;
    for (u32 class_ = 0; class_ < classes; class_++)
        sum += expf(LOAD(row[class_]) - largest);
    losses[sample] = logf(sum) - (LOAD(row[label]) - largest);
    for (u32 class_ = 0; class_ < classes; class_++) {
        float probability = expf(LOAD(row[class_]) - largest) / sum;
        gradient[sample * classes + class_] = STORE(probability * share - (class_ == label ? share : 0.0f));
    }
}

// The sums of columns, first over every `parts`-th row: one thread for each part of each column.
KERNEL sum_rows_partly(const STORED *rows, float *sums, u64 row_count, u32 columns, u32 parts)
{
    u64 index = THREAD;
    if (index >= (u64)parts * columns)
        return;
    u64 column = index % columns;
    float sum = 0.0f;
    for (u64 row = index / columns; row < row_count; row += parts)
        sum += LOAD(rows[row * columns + column]);
    sums[index] = sum;
}

// Then over the parts: one thread for each column.
KERNEL sum_parts(const float *sums, STORED *totals, u32 columns, u32 parts)
{
    u64 column = THREAD;
    if (column >= columns)
        return;
    float sum = 0.0f;
    for (u32 part = 0; part < parts; part++)
        sum += sums[(u64)part * columns + column];
    totals[column] = STORE(sum);
}

// One step of gradient descent with momentum. The gradient is cut at `largest`.
KERNEL descend(STORED *values, STORED *momentum, const STORED *gradient, u64 count, float rate, float largest, float kept)
{
    u64 index = THREAD;
    if (index >= count)
        return;
    float cut = fminf(fmaxf(LOAD(gradient[index]), -largest), largest);
    float moved = kept * LOAD(momentum[index]) + cut;
    momentum[index] = STORE(moved);
    values[index] = STORE(LOAD(values[index]) - rate * moved);
}
