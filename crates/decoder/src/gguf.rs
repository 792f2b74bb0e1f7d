//! A reader of GGUF files (versions 2 and 3, little-endian) over bytes that are all in memory.
//!
//! Parsing is total: any bytes give a file or an error that says where and why. Nothing is allocated for a
//! count that the remaining bytes could not hold, and strings and tensors are borrowed from the input.

use std::collections::HashSet;

use simpler_kernel_abi::DType;

use crate::Error;
use crate::blocks::weight_bytes;

/// The first four bytes of a file.
const MAGIC: [u8; 4] = *b"GGUF";
/// Most metadata entries: real files have a few dozen.
pub const METADATA_MAX: u64 = 4096;
/// Most tensors: the largest published models have a few thousand.
pub const TENSORS_MAX: u64 = 65536;
/// Most dimensions of a tensor, as the format has it.
pub const DIMENSIONS_MAX: u32 = 4;
/// Where tensor data is aligned to, unless `general.alignment` says otherwise.
const ALIGNMENT_DEFAULT: u64 = 32;
/// Largest alignment taken: a huge page.
const ALIGNMENT_MAX: u64 = 2 << 20;

/// A metadata value. Integers and floats of all widths are widened.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Unsigned integer of any width.
    Unsigned(u64),
    /// Signed integer of any width.
    Signed(i64),
    /// Float of any width.
    Float(f64),
    /// Boolean.
    Bool(bool),
    /// String.
    Text(&'a str),
    /// Array of strings.
    Texts(Vec<&'a str>),
    /// Array of integers or booleans. Values above `i64::MAX` are refused.
    Integers(Vec<i64>),
    /// Array of floats.
    Floats(Vec<f64>),
}

/// A tensor's place and shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor<'a> {
    /// Name.
    pub name: &'a str,
    /// Elements of a row (the dimension that varies fastest).
    pub columns: u64,
    /// Rows: the product of all further dimensions.
    pub rows: u64,
    /// Element format: F32, F16, Q4_1 or Q8_0.
    pub dtype: DType,
    /// The elements.
    pub bytes: &'a [u8],
}

/// A parsed file.
#[derive(Clone, Debug, PartialEq)]
pub struct Gguf<'a> {
    metadata: Vec<(&'a str, Value<'a>)>,
    tensors: Vec<Tensor<'a>>,
}

impl<'a> Gguf<'a> {
    /// Parses a whole file.
    ///
    /// # Errors
    /// On anything that is not a complete GGUF file of versions 2 or 3 with tensors in F32, F16, Q4_1 or Q8_0.
    pub fn parse(file: &'a [u8]) -> Result<Self, Error> {
        let mut input = Input { file, at: 0 };
        if input.take(4)? != MAGIC {
            return Err(Error::gguf(0, "this is not a GGUF file"));
        }
        let version = input.u32()?;
        if !(2..=3).contains(&version) {
            return Err(Error::gguf(
                4,
                format!("version {version} is not read (2 and 3 are, little-endian)"),
            ));
        }
        let tensor_count = input.u64()?;
        let metadata_count = input.u64()?;
        if tensor_count > TENSORS_MAX {
            return Err(Error::gguf(8, format!("{tensor_count} tensors are more than {TENSORS_MAX}")));
        }
        if metadata_count > METADATA_MAX {
            return Err(Error::gguf(16, format!("{metadata_count} entries are more than {METADATA_MAX}")));
        }
        let metadata = parse_metadata(&mut input, metadata_count)?;
        let places = parse_tensor_places(&mut input, tensor_count)?;
        let alignment = alignment(&metadata)?;
        let data_at = (input.at as u64).next_multiple_of(alignment);
        let tensors = places
            .into_iter()
            .map(|place| place.locate(file, data_at, alignment))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { metadata, tensors })
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value<'a>> {
        self.metadata.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// All tensors, in the file's order.
    pub fn tensors(&self) -> &[Tensor<'a>] {
        &self.tensors
    }

    /// The string of a key, if there is one.
    pub fn text(&self, key: &str) -> Option<&'a str> {
        match self.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The non-negative integer of a key, if there is one.
    pub fn unsigned(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Value::Unsigned(value) => Some(*value),
            Value::Signed(value) => u64::try_from(*value).ok(),
            _ => None,
        }
    }

    /// The float of a key, if there is one.
    pub fn float(&self, key: &str) -> Option<f32> {
        match self.get(key)? {
            Value::Float(value) => Some(*value as f32),
            _ => None,
        }
    }
}

struct Input<'a> {
    file: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let taken = self.at.checked_add(count).and_then(|end| self.file.get(self.at..end));
        let taken = taken.ok_or_else(|| {
            Error::gguf(self.at, format!("the file ends here, {count} more bytes are announced"))
        })?;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn text(&mut self) -> Result<&'a str, Error> {
        let bytes = self.u64()?;
        let at = self.at;
        let bytes = usize::try_from(bytes).map_err(|_| Error::gguf(at, "a string longer than memory"))?;
        str::from_utf8(self.take(bytes)?).map_err(|_| Error::gguf(at, "a string is not UTF-8"))
    }

    fn scalar(&mut self, kind: u32) -> Result<Value<'a>, Error> {
        let at = self.at;
        Ok(match kind {
            0 => Value::Unsigned(self.array::<1>()?[0].into()),
            1 => Value::Signed(i8::from_le_bytes(self.array()?).into()),
            2 => Value::Unsigned(u16::from_le_bytes(self.array()?).into()),
            3 => Value::Signed(i16::from_le_bytes(self.array()?).into()),
            4 => Value::Unsigned(self.u32()?.into()),
            5 => Value::Signed(i32::from_le_bytes(self.array()?).into()),
            6 => Value::Float(f32::from_le_bytes(self.array()?).into()),
            7 => match self.array::<1>()?[0] {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                other => return Err(Error::gguf(at, format!("a boolean is {other}"))),
            },
            8 => Value::Text(self.text()?),
            10 => Value::Unsigned(self.u64()?),
            11 => Value::Signed(i64::from_le_bytes(self.array()?)),
            12 => Value::Float(f64::from_le_bytes(self.array()?)),
            9 => return Err(Error::gguf(at, "an array inside an array")),
            other => return Err(Error::gguf(at, format!("value type {other} is unknown"))),
        })
    }

    fn values(&mut self) -> Result<Value<'a>, Error> {
        let kind = self.u32()?;
        let at = self.at;
        let count = self.u64()?;
        // The least that an element takes in the file: no count is believed that the file cannot hold.
        let least = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            8 | 10..=12 => 8,
            9 => return Err(Error::gguf(at, "an array inside an array")),
            other => return Err(Error::gguf(at, format!("value type {other} is unknown"))),
        };
        let left = (self.file.len() - self.at) as u64;
        if count > left / least {
            return Err(Error::gguf(at, format!("an array of {count} elements in the last {left} bytes")));
        }
        Ok(match kind {
            8 => Value::Texts((0..count).map(|_| self.text()).collect::<Result<_, _>>()?),
            6 | 12 => Value::Floats(
                (0..count)
                    .map(|_| match self.scalar(kind)? {
                        Value::Float(value) => Ok(value),
                        _ => Err(Error::gguf(at, "a float array holds something else")),
                    })
                    .collect::<Result<_, _>>()?,
            ),
            _ => Value::Integers(
                (0..count)
                    .map(|_| match self.scalar(kind)? {
                        Value::Unsigned(value) => i64::try_from(value)
                            .map_err(|_| Error::gguf(at, format!("an array holds {value}, above 2^63"))),
                        Value::Signed(value) => Ok(value),
                        Value::Bool(value) => Ok(value.into()),
                        _ => Err(Error::gguf(at, "an integer array holds something else")),
                    })
                    .collect::<Result<_, _>>()?,
            ),
        })
    }
}

fn parse_metadata<'a>(input: &mut Input<'a>, count: u64) -> Result<Vec<(&'a str, Value<'a>)>, Error> {
    let mut metadata = Vec::new();
    let mut names = HashSet::new();
    for _ in 0..count {
        let at = input.at;
        let key = input.text()?;
        if !names.insert(key) {
            return Err(Error::gguf(at, format!("the key {key:?} occurs twice")));
        }
        let value = match input.u32()? {
            9 => input.values()?,
            kind => input.scalar(kind)?,
        };
        metadata.push((key, value));
    }
    Ok(metadata)
}

fn alignment(metadata: &[(&str, Value<'_>)]) -> Result<u64, Error> {
    match metadata.iter().find(|(key, _)| *key == "general.alignment").map(|(_, value)| value) {
        None => Ok(ALIGNMENT_DEFAULT),
        Some(Value::Unsigned(value)) if value.is_power_of_two() && *value <= ALIGNMENT_MAX => Ok(*value),
        Some(other) => Err(Error::gguf(0, format!("general.alignment is {other:?}"))),
    }
}

struct TensorPlace<'a> {
    name: &'a str,
    /// Where its entry stands in the file.
    at: usize,
    columns: u64,
    rows: u64,
    dtype: DType,
    bytes: u64,
    offset: u64,
}

fn parse_tensor_places<'a>(input: &mut Input<'a>, count: u64) -> Result<Vec<TensorPlace<'a>>, Error> {
    let mut places = Vec::new();
    let mut names = HashSet::new();
    for _ in 0..count {
        let at = input.at;
        let name = input.text()?;
        if !names.insert(name) {
            return Err(Error::gguf(at, format!("the tensor {name:?} occurs twice")));
        }
        let dimensions = input.u32()?;
        if !(1..=DIMENSIONS_MAX).contains(&dimensions) {
            return Err(Error::gguf(at, format!("{name} has {dimensions} dimensions")));
        }
        let columns = input.u64()?;
        let mut rows: u64 = 1;
        for _ in 1..dimensions {
            rows = rows
                .checked_mul(input.u64()?)
                .ok_or_else(|| Error::gguf(at, format!("{name} has more than 2^64 rows")))?;
        }
        let kind = input.u32()?;
        let dtype = weight_format(kind).ok_or_else(|| {
            let type_name = type_name(kind);
            Error::gguf(at, format!("{name} is in {type_name}; F32, F16, Q4_1 and Q8_0 are read"))
        })?;
        let bytes = weight_bytes(dtype, columns).and_then(|row| row.checked_mul(rows)).ok_or_else(|| {
            Error::gguf(at, format!("{name}: rows of {columns} elements are no whole blocks, or too many"))
        })?;
        let offset = input.u64()?;
        places.push(TensorPlace { name, at, columns, rows, dtype, bytes, offset });
    }
    Ok(places)
}

impl<'a> TensorPlace<'a> {
    fn locate(self, file: &'a [u8], data_at: u64, alignment: u64) -> Result<Tensor<'a>, Error> {
        let Self { name, at, columns, rows, dtype, bytes, offset } = self;
        if !offset.is_multiple_of(alignment) {
            return Err(Error::gguf(
                at,
                format!("{name} starts at {offset}, not at a multiple of {alignment}"),
            ));
        }
        let range = data_at.checked_add(offset).and_then(|start| {
            Some(usize::try_from(start).ok()?..usize::try_from(start.checked_add(bytes)?).ok()?)
        });
        let bytes = range
            .and_then(|range| file.get(range))
            .ok_or_else(|| Error::gguf(at, format!("{name} ends beyond the file")))?;
        Ok(Tensor { name, columns, rows, dtype, bytes })
    }
}

fn weight_format(kind: u32) -> Option<DType> {
    Some(match kind {
        0 => DType::F32,
        1 => DType::F16,
        3 => DType::Q4_1,
        8 => DType::Q8_0,
        _ => return None,
    })
}

/// What a tensor type that is not read is called.
fn type_name(kind: u32) -> String {
    let name = match kind {
        2 => "Q4_0",
        6 => "Q5_0",
        7 => "Q5_1",
        9 => "Q8_1",
        10 => "Q2_K",
        11 => "Q3_K",
        12 => "Q4_K",
        13 => "Q5_K",
        14 => "Q6_K",
        15 => "Q8_K",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        30 => "BF16",
        other => return format!("type {other}"),
    };
    name.to_owned()
}
