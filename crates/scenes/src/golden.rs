//! The right results, by loops that are as plain as can be.

/// a [m, k] times b [k, n].
pub(crate) fn matmul(a: &[f32], b: &[f32], m: usize, k: usize, n: usize) -> Vec<f32> {
    let dot = |row: usize, column: usize| (0..k).map(|i| a[row * k + i] * b[i * n + column]).sum();
    (0..m * n).map(|place| dot(place / n, place % n)).collect()
}

/// exp(x) over the sum of all.
pub(crate) fn softmax(row: &[f32]) -> Vec<f32> {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = row.iter().map(|x| (x - largest).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

/// Attention of each head's query over `tokens` keys and values, `dim` numbers each from `place(head, token)` on.
pub(crate) fn attention(
    q: &[f32],
    keys: &[f32],
    values: &[f32],
    dim: usize,
    tokens: usize,
    place: impl Fn(usize, usize) -> usize,
) -> Vec<f32> {
    let of_head = |(head, q): (usize, &[f32])| {
        let score = |token: usize| {
            let key = &keys[place(head, token)..][..dim];
            q.iter().zip(key).map(|(q, key)| q * key).sum::<f32>() / (dim as f32).sqrt()
        };
        let weights = softmax(&(0..tokens).map(score).collect::<Vec<_>>());
        let weighted = |i: usize| {
            weights.iter().enumerate().map(|(token, weight)| weight * values[place(head, token) + i]).sum()
        };
        (0..dim).map(weighted).collect::<Vec<f32>>()
    };
    q.chunks(dim).enumerate().flat_map(of_head).collect()
}
