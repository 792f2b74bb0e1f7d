//! Strided views, told apart: a view as a box in the grid of its buffer.
//!
//! Two tiles of a matrix that stand side by side span the same rows, so their intervals of bytes overlap although they
//! share no byte. If both are cut from the same grid, that is, have the same strides, each of which is a multiple of the
//! next, then a byte has one place in it: a coordinate for each stride and one inside the element. A view is then a range
//! of each coordinate, and two views share a byte exactly where all their ranges meet.

use simpler_kernel_abi::{DType, SimplerTensor, TENSOR_DIMS_MAX};

/// A coordinate for each stride, and the byte inside the element.
const COORDINATES: usize = TENSOR_DIMS_MAX + 1;

/// A strided view in its buffer's grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridBox {
    /// Bytes, from the largest to the element's; coordinates that are not used have 0.
    strides: [u64; COORDINATES],
    /// First and one past the last, by coordinate.
    ranges: [(u64, u64); COORDINATES],
}

impl GridBox {
    /// The box of a view; None where it is contiguous, or no box of a grid.
    pub fn of(view: &SimplerTensor) -> Option<Self> {
        let dims = view.ndims as usize;
        if view.contiguous != 0 || dims == 0 || dims > TENSOR_DIMS_MAX {
            return None;
        }
        let element = element_bytes(view.dtype)?;
        let mut axes = [(0, 0); TENSOR_DIMS_MAX];
        for (axis, (stride, shape)) in axes.iter_mut().zip(view.strides.iter().zip(view.shapes)).take(dims) {
            *axis = (*stride, u64::from(shape));
        }
        let axes = &mut axes[..dims];
        axes.sort_unstable_by_key(|(stride, _)| std::cmp::Reverse(*stride));
        let mut grid = Self { strides: [0; COORDINATES], ranges: [(0, 1); COORDINATES] };
        let (mut rest, mut span, mut room) = (view.start_offset, element, u64::MAX);
        for (coordinate, (stride, shape)) in axes.iter().enumerate() {
            let (stride, shape) = (*stride, *shape);
            if stride == 0 || shape == 0 || room != u64::MAX && !room.is_multiple_of(stride) {
                return None;
            }
            let first = rest / stride;
            rest %= stride;
            let end = first.checked_add(shape)?;
            // What would reach into the next larger coordinate has two places.
            if room != u64::MAX && end > room / stride {
                return None;
            }
            grid.strides[coordinate] = stride;
            grid.ranges[coordinate] = (first, end);
            span = span.checked_add(stride.checked_mul(shape - 1)?)?;
            room = stride;
        }
        let end = rest.checked_add(element)?;
        if end > room || span > view.extent {
            return None;
        }
        grid.strides[dims] = 1;
        grid.ranges[dims] = (rest, end);
        Some(grid)
    }

    /// Whether the two share no byte, for certain.
    pub fn is_apart_from(&self, other: &Self) -> bool {
        let mut ranges = self.ranges.iter().zip(&other.ranges);
        self.strides == other.strides && ranges.any(|(one, two)| one.1 <= two.0 || two.1 <= one.0)
    }

    /// Whether every byte of the other one is in this one, for certain.
    pub fn covers(&self, other: &Self) -> bool {
        let mut ranges = self.ranges.iter().zip(&other.ranges);
        self.strides == other.strides && ranges.all(|(one, two)| one.0 <= two.0 && two.1 <= one.1)
    }
}

/// Bytes of an element; None for blocks, whose places in a grid are another question.
fn element_bytes(dtype: u8) -> Option<u64> {
    const SIZES: [(DType, u64); 4] = [(DType::F32, 4), (DType::F16, 2), (DType::I32, 4), (DType::U8, 1)];
    SIZES.iter().find(|(known, _)| *known as u8 == dtype).map(|(_, bytes)| *bytes)
}

#[cfg(test)]
mod tests {
    use simpler_kernel_abi::DEVICE_MEMORY;

    use super::*;

    /// A view of a matrix of floats with rows of 16.
    fn tile(row: u64, column: u64, rows: u32, columns: u32) -> SimplerTensor {
        let mut view = SimplerTensor::whole(4096, 16 * 16 * 4, DType::F32, DEVICE_MEMORY);
        view.contiguous = 0;
        view.ndims = 2;
        (view.shapes[0], view.shapes[1]) = (rows, columns);
        (view.strides[0], view.strides[1]) = (64, 4);
        view.start_offset = row * 64 + column * 4;
        view.extent = u64::from(rows - 1) * 64 + u64::from(columns) * 4;
        view
    }

    #[test]
    fn tiles_side_by_side_are_apart_and_those_that_meet_are_not() {
        let of = |view: SimplerTensor| GridBox::of(&view).unwrap();
        let (left, right) = (of(tile(0, 0, 16, 8)), of(tile(0, 8, 16, 8)));
        assert!(left.is_apart_from(&right) && right.is_apart_from(&left));
        let middle = of(tile(4, 4, 4, 8));
        assert!(!left.is_apart_from(&middle) && !right.is_apart_from(&middle));
        assert!(of(tile(0, 0, 4, 16)).is_apart_from(&of(tile(4, 0, 4, 16))));
        assert!(left.covers(&of(tile(3, 2, 5, 6))) && !left.covers(&middle));
        // The same tile, its columns first.
        let mut turned = tile(0, 8, 16, 8);
        turned.shapes.swap(0, 1);
        turned.strides.swap(0, 1);
        assert_eq!(of(turned), right);
    }

    #[test]
    fn what_is_no_box_of_a_grid_is_none() {
        let change = |change: fn(&mut SimplerTensor)| {
            let mut view = tile(1, 8, 4, 8);
            change(&mut view);
            GridBox::of(&view)
        };
        assert!(change(|_| ()).is_some());
        for refused in [
            change(|view| view.contiguous = 1),
            change(|view| view.ndims = 0),
            change(|view| view.ndims = 6),
            change(|view| view.dtype = 99),
            change(|view| view.shapes[0] = 0),
            change(|view| view.strides[1] = 0),
            change(|view| view.strides[0] = 66),
            // Wraps into the next row.
            change(|view| view.shapes[1] = 9),
            // Elements that overlap their neighbours.
            change(|view| view.strides[1] = 2),
            // Spans more than it says.
            change(|view| view.extent -= 1),
            change(|view| view.strides[0] = u64::MAX),
        ] {
            assert_eq!(refused, None);
        }
        // Halves of elements in a grid of whole ones are told apart by their byte.
        let half = |at: u64| {
            let mut view = tile(0, 0, 4, 8);
            view.dtype = DType::F16 as u8;
            view.start_offset += at;
            GridBox::of(&view).unwrap()
        };
        assert!(half(0).is_apart_from(&half(2)) && !half(0).is_apart_from(&half(0)));
    }
}
