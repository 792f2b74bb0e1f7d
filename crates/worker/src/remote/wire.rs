//! The frames of a session, as bytes.
//!
//! A frame is `[u32 kind][u32 bytes of the payload]` and the payload, all numbers little-endian. Version 1 has these:
//!
//! ```text
//! HELLO     rank → parent  u32 version, 32 bytes token, u32 rank, u64 pid, u64 host, host's name
//! WELCOME   parent → rank
//! REFUSED   parent → rank  text
//! READY     rank → parent
//! PREPARE   parent → rank  32 bytes digest                       answered by ANSWER or FAILED
//! TASK      parent → rank  u32 bytes of the head, head, data     answered by DONE or FAILED
//! SHUTDOWN  parent → rank                                        answered by ANSWER or FAILED
//! ANSWER    rank → parent  u64
//! DONE      rank → parent  data
//! FAILED    rank → parent  i32 code, text
//! ```
//!
//! Version and token stand in front of everything that another version could have changed. The head of a TASK is what a
//! mailbox's frame holds, in words of 64 bits: digest, run and dispatch id, CallConfig, argument blob; then the regions of
//! host memory that its tensors lie in, `[address][bytes][1 if it comes back]` each. The data are the regions' bytes in
//! that order; DONE has those that come back.
//!
//! Reading is total: whatever the bytes, the outcome is a frame or a sentence. A length in the stream is checked against
//! the bound of its kind before anything is read, and memory grows with what has arrived, not with what was announced.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use simpler_kernel_abi::HOST_MEMORY;

use crate::arguments::{self, BLOB_WORDS, Blob};
use crate::call_config;
use crate::mailbox::{Digest, ERROR_TEXT_BYTES, Failure};
use crate::{ArgUse, RunArgs};

/// The version that this code speaks.
pub(crate) const PROTOCOL_VERSION: u32 = 1;
/// A session's secret.
pub(crate) type Token = [u8; 32];

/// Longest payload of a frame without data: a task's head, and less for the rest.
pub(crate) const CONTROL_BYTES_MAX: usize = HEAD_BYTES_MAX;
/// Longest payload of HELLO, which anybody may send: its fields and the kernel's limit for a host's name.
pub(crate) const HELLO_BYTES_MAX: usize = 4 + 32 + 4 + 8 + 8 + 64;
/// Most data of a task. A rank reserves as much address space for it.
pub const DATA_BYTES_MAX: usize = 1 << 28;

pub(crate) const HEADER_BYTES: usize = 8;

/// Digest, run id, dispatch id.
const IDENTITY_WORDS: usize = 4 + 2;
const CONFIG_WORDS: usize = size_of::<call_config::Words>() / 8;
/// One for each tensor at most.
const REGIONS_MAX: usize = simpler_kernel_abi::CHIP_TENSORS_MAX;
const REGION_WORDS: usize = 3;
/// The longest head: everything as large as it can be, and the count of the regions.
const HEAD_BYTES_MAX: usize =
    8 * (IDENTITY_WORDS + CONFIG_WORDS + BLOB_WORDS + 1 + REGIONS_MAX * REGION_WORDS);

// The descriptors of tensors hold halves of words, which lie the other way round elsewhere.
const _: () = assert!(cfg!(target_endian = "little"), "sessions are for little-endian hosts");
const _: () = assert!(DATA_BYTES_MAX + HEAD_BYTES_MAX < u32::MAX as usize);

/// What a frame is.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Hello = 1,
    Welcome = 2,
    Refused = 3,
    Ready = 4,
    Prepare = 5,
    Task = 6,
    Shutdown = 7,
    Answer = 8,
    Done = 9,
    Failed = 10,
}

impl Kind {
    fn from_raw(raw: u32) -> Option<Self> {
        use Kind::*;
        [Hello, Welcome, Refused, Ready, Prepare, Task, Shutdown, Answer, Done, Failed]
            .into_iter()
            .find(|kind| *kind as u32 == raw)
    }

    fn bytes_max(self) -> usize {
        match self {
            Kind::Hello => HELLO_BYTES_MAX,
            Kind::Task => 4 + HEAD_BYTES_MAX + DATA_BYTES_MAX,
            Kind::Done => DATA_BYTES_MAX,
            _ => CONTROL_BYTES_MAX,
        }
    }
}

/// Why there is no frame.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The other side is gone.
    Closed(io::Error),
    /// What it sends is none.
    Protocol(String),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Closed(error)
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Broken::Closed(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                write!(out, "the connection was closed")
            }
            Broken::Closed(error) => write!(out, "the connection is broken: {error}"),
            Broken::Protocol(text) => write!(out, "protocol: {text}"),
        }
    }
}

/// Kind and length from a header.
pub(crate) fn parse_header(header: [u8; HEADER_BYTES]) -> Result<(Kind, usize), String> {
    let [kind, bytes] =
        header.as_chunks().0.try_into().map_or([0, 0], |words: [[u8; 4]; 2]| words.map(u32::from_le_bytes));
    let known = Kind::from_raw(kind).ok_or_else(|| format!("a frame of the unknown kind {kind}"))?;
    let most = known.bytes_max();
    match usize::try_from(bytes) {
        Ok(bytes) if bytes <= most => Ok((known, bytes)),
        _ => Err(format!("a {known:?} frame of {bytes} bytes, of which it has at most {most}")),
    }
}

/// Reads the next header.
pub(crate) fn read_header(from: &mut impl Read) -> Result<(Kind, usize), Broken> {
    let mut header = [0; HEADER_BYTES];
    from.read_exact(&mut header)?;
    parse_header(header).map_err(Broken::Protocol)
}

/// Reads the next `bytes` bytes.
pub(crate) fn read_bytes(from: &mut impl Read, bytes: usize) -> Result<Vec<u8>, Broken> {
    let mut payload = Vec::new();
    from.take(bytes as u64).read_to_end(&mut payload)?;
    if payload.len() < bytes {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(payload)
}

/// Writes a frame whose payload lies in pieces.
pub(crate) fn write_frame(to: &mut impl Write, kind: Kind, pieces: &[&[u8]]) -> io::Result<()> {
    let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
    if bytes > kind.bytes_max() {
        return Err(io::Error::other(format!("a {kind:?} frame of {bytes} bytes")));
    }
    let mut head = Vec::with_capacity(HEADER_BYTES + pieces.first().map_or(0, |piece| piece.len()));
    head.extend((kind as u32).to_le_bytes());
    head.extend((bytes as u32).to_le_bytes());
    let mut rest = pieces;
    // The header goes with the first piece: a small frame is one write.
    if let [first, others @ ..] = pieces {
        head.extend_from_slice(first);
        rest = others;
    }
    to.write_all(&head)?;
    rest.iter().try_for_each(|piece| to.write_all(piece))
}

/// What a rank says first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    pub(crate) token: Token,
    pub(crate) rank: u32,
    pub(crate) pid: u64,
    pub(crate) host: u64,
    pub(crate) name: String,
}

impl Hello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HELLO_BYTES_MAX);
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.token);
        bytes.extend(self.rank.to_le_bytes());
        bytes.extend(self.pid.to_le_bytes());
        bytes.extend(self.host.to_le_bytes());
        bytes.extend(self.name.as_bytes());
        bytes.truncate(HELLO_BYTES_MAX);
        bytes
    }

    /// Reads a HELLO's payload. Of another version only version and token count, the rest may be anything.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, String> {
        let mut reader = Reader(payload);
        let (version, token) = (reader.u32()?, reader.array()?);
        let mut hello = Self { version, token, rank: 0, pid: 0, host: 0, name: String::new() };
        if version != PROTOCOL_VERSION {
            return Ok(hello);
        }
        (hello.rank, hello.pid, hello.host) = (reader.u32()?, reader.u64()?, reader.u64()?);
        hello.name = String::from_utf8_lossy(reader.0).into_owned();
        Ok(hello)
    }
}

/// A FAILED's payload; a text that is too long is cut and ends in `~`.
pub(crate) fn encode_failure(code: i32, text: &str) -> Vec<u8> {
    // A failure whose code is 0 would read as success.
    let mut bytes = (if code == 0 { -1 } else { code }).to_le_bytes().to_vec();
    if text.len() <= ERROR_TEXT_BYTES {
        bytes.extend_from_slice(text.as_bytes());
    } else {
        bytes.extend_from_slice(&text.as_bytes()[..text.floor_char_boundary(ERROR_TEXT_BYTES - 1)]);
        bytes.push(b'~');
    }
    bytes
}

pub(crate) fn decode_failure(payload: &[u8]) -> Result<Failure, String> {
    let mut reader = Reader(payload);
    let code = reader.u32()?.cast_signed();
    Ok(Failure {
        code: if code == 0 { -1 } else { code },
        text: String::from_utf8_lossy(reader.0).into_owned(),
    })
}

pub(crate) fn decode_u64(payload: &[u8]) -> Result<u64, String> {
    let mut reader = Reader(payload);
    let value = reader.u64()?;
    reader.ends()?;
    Ok(value)
}

pub(crate) fn decode_digest(payload: &[u8]) -> Result<Digest, String> {
    let mut reader = Reader(payload);
    let digest = reader.array()?;
    reader.ends()?;
    Ok(digest)
}

/// A piece of the parent's host memory that a task's tensors lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// At the parent.
    pub(crate) addr: u64,
    pub(crate) bytes: u64,
    /// Whether the run may write it, so that it goes back.
    pub(crate) comes_back: bool,
}

/// The regions that the host tensors of a run lie in: tensors that overlap share one, so that they still do elsewhere.
/// Device memory is refused: the parent's means nothing there.
pub(crate) fn regions_of(args: &RunArgs) -> Result<Vec<Region>, String> {
    let mut regions = Vec::with_capacity(args.tensors.len());
    for (position, arg) in args.tensors.iter().enumerate() {
        let tensor = &arg.tensor;
        if tensor.bytes == 0 {
            continue;
        }
        if tensor.address_space != HOST_MEMORY {
            return Err(format!(
                "tensor {position} is device memory of this host ({} bytes at {:#x}), which a worker on another one \
                 cannot reach: pass host memory, whose bytes are copied",
                tensor.bytes, tensor.addr
            ));
        }
        if tensor.addr.checked_add(tensor.bytes).is_none() {
            return Err(format!("tensor {position} ends beyond the address space"));
        }
        let comes_back = !matches!(arg.arg_use, ArgUse::Input | ArgUse::NoDep);
        regions.push(Region { addr: tensor.addr, bytes: tensor.bytes, comes_back });
    }
    regions.sort_unstable_by_key(|region| region.addr);
    let mut merged: Vec<Region> = Vec::with_capacity(regions.len());
    for region in regions {
        match merged.last_mut() {
            Some(last) if region.addr < last.addr + last.bytes => {
                last.bytes = last.bytes.max(region.addr - last.addr + region.bytes);
                last.comes_back |= region.comes_back;
            }
            _ => merged.push(region),
        }
    }
    let total: u128 = merged.iter().map(|region| u128::from(region.bytes)).sum();
    if total > DATA_BYTES_MAX as u128 {
        return Err(format!(
            "the host tensors have {total} bytes: a run on another host takes at most {DATA_BYTES_MAX}"
        ));
    }
    Ok(merged)
}

/// A task, without the data.
#[derive(Clone, Debug)]
pub(crate) struct TaskHead {
    pub(crate) callable: Digest,
    pub(crate) run_id: u64,
    pub(crate) dispatch_id: u64,
    /// Addresses are the parent's.
    pub(crate) args: RunArgs,
    pub(crate) regions: Vec<Region>,
}

impl TaskHead {
    /// The head's bytes, with their number in front.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, String> {
        let blob = new_blob();
        let config: call_config::Words = std::array::from_fn(|_| AtomicU64::new(0));
        arguments::write(&blob, &self.args)?;
        call_config::write(&config, &self.args.config)?;
        let blob_words = arguments::words(self.args.tensors.len(), self.args.scalars.len());
        let mut bytes = vec![0; 4];
        bytes.extend(self.callable);
        let identity = [self.run_id, self.dispatch_id].into_iter();
        // ORDERING: Relaxed: nobody else has them.
        let config = config.iter().map(|word| word.load(Ordering::Relaxed));
        // ORDERING: as above.
        let blob = blob[..blob_words].iter().map(|word| word.load(Ordering::Relaxed));
        let regions =
            self.regions.iter().flat_map(|region| [region.addr, region.bytes, region.comes_back.into()]);
        let words = identity.chain(config).chain(blob).chain([self.regions.len() as u64]).chain(regions);
        bytes.extend(words.flat_map(u64::to_le_bytes));
        let head_bytes = (bytes.len() - 4) as u32;
        bytes[..4].copy_from_slice(&head_bytes.to_le_bytes());
        Ok(bytes)
    }

    /// Reads a head, without the number in front. Every tensor in host memory lies inside one of the regions.
    pub(crate) fn decode(head: &[u8]) -> Result<Self, String> {
        let mut reader = Reader(head);
        let callable = reader.array()?;
        let (run_id, dispatch_id) = (reader.u64()?, reader.u64()?);
        let config: call_config::Words = {
            let words: [u8; CONFIG_WORDS * 8] = reader.array()?;
            let words = words.as_chunks::<8>().0;
            std::array::from_fn(|at| AtomicU64::new(u64::from_le_bytes(words[at])))
        };
        let config = call_config::read(&config)?;
        let counts = u64::from_le_bytes(reader.peek()?);
        let (tensors, scalars) = (counts as u32 as usize, (counts >> 32) as usize);
        arguments::check(tensors, scalars)?;
        let blob = new_blob();
        for word in &blob[..arguments::words(tensors, scalars)] {
            // ORDERING: Relaxed: nobody else has it.
            word.store(reader.u64()?, Ordering::Relaxed);
        }
        let args = RunArgs { config, ..arguments::read(&blob)? };
        let count = reader.u64()?;
        if count > REGIONS_MAX as u64 {
            return Err(format!("{count} regions, of which a task has at most {REGIONS_MAX}"));
        }
        let mut regions = Vec::new();
        for _ in 0..count {
            let (addr, bytes, comes_back) = (reader.u64()?, reader.u64()?, reader.u64()?);
            if bytes > DATA_BYTES_MAX as u64 || addr.checked_add(bytes).is_none() || comes_back > 1 {
                return Err(format!("a region of {bytes} bytes at {addr:#x}"));
            }
            regions.push(Region { addr, bytes, comes_back: comes_back == 1 });
        }
        reader.ends()?;
        Ok(Self { callable, run_id, dispatch_id, args, regions })
    }

    /// Lays the regions out from `base` on and makes the tensors' addresses those there. Gives each region's place, as
    /// an offset.
    pub(crate) fn place(&mut self, base: u64, room: usize) -> Result<Vec<usize>, String> {
        let mut offsets = Vec::with_capacity(self.regions.len());
        let mut end: usize = 0;
        for region in &self.regions {
            // Where it lies in a cache line is as at the parent, up to the alignment that a buffer there has.
            let start = end.next_multiple_of(ALIGNMENT) + (region.addr as usize % ALIGNMENT);
            // Each is at most DATA_BYTES_MAX, and there are few.
            end = start + region.bytes as usize;
            offsets.push(start);
        }
        if end > room {
            return Err(format!("the task's data take {end} bytes, of which there are {room}"));
        }
        for (position, arg) in self.args.tensors.iter_mut().enumerate() {
            let tensor = &mut arg.tensor;
            if tensor.bytes == 0 {
                continue;
            }
            let inside = |region: &Region| {
                let offset = tensor.addr.checked_sub(region.addr)?;
                (offset.checked_add(tensor.bytes)? <= region.bytes).then_some(offset)
            };
            let found =
                self.regions.iter().zip(&offsets).find_map(|(region, at)| Some((inside(region)?, *at)));
            let Some((offset, at)) = found.filter(|_| tensor.address_space == HOST_MEMORY) else {
                return Err(format!("tensor {position} lies in no memory that came with the task"));
            };
            if tensor.start_offset.checked_add(tensor.extent).is_none_or(|end| end > tensor.bytes) {
                return Err(format!("tensor {position} views more than its {} bytes", tensor.bytes));
            }
            tensor.addr = base + at as u64 + offset;
        }
        Ok(offsets)
    }
}

/// A page: what a shared buffer begins at.
const ALIGNMENT: usize = 4096;
/// What a rank keeps for the data of a task: besides the data each region may leave two pages unused.
pub(crate) const WINDOW_BYTES: usize = DATA_BYTES_MAX + 2 * ALIGNMENT * REGIONS_MAX;

fn new_blob() -> Box<Blob> {
    let words: Vec<AtomicU64> = (0..BLOB_WORDS).map(|_| AtomicU64::new(0)).collect();
    words.into_boxed_slice().try_into().unwrap_or_else(|_| unreachable!("as many as a blob has"))
}

/// Fields from bytes.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn peek<const N: usize>(&self) -> Result<[u8; N], String> {
        self.0.first_chunk().copied().ok_or_else(|| format!("a frame ends {} bytes early", N - self.0.len()))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let array = self.peek()?;
        self.0 = &self.0[N..];
        Ok(array)
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    fn ends(&self) -> Result<(), String> {
        match self.0.len() {
            0 => Ok(()),
            more => Err(format!("a frame has {more} bytes behind its end")),
        }
    }
}

#[cfg(any(fuzzing, test))]
pub mod trial {
    //! Any bytes as what the other side has sent, for the fuzzer and for the replay of its corpus.

    use super::*;

    /// Gives the bytes to everything that reads a payload. What a task's head names lies inside the room that it got.
    ///
    /// # Panics
    /// Where it does not.
    pub fn read_all(bytes: &[u8]) {
        if let Some(header) = bytes.first_chunk() {
            let _ = parse_header(*header);
        }
        let _ = (decode_failure(bytes), decode_u64(bytes), decode_digest(bytes));
        if let Ok(hello) = Hello::decode(bytes)
            && hello.version == PROTOCOL_VERSION
        {
            assert!(hello.name.is_empty() || bytes.len() > 56);
        }
        let Ok(mut head) = TaskHead::decode(bytes) else { return };
        let (base, room) = (1_u64 << 40, 1 << 24);
        let Ok(offsets) = head.place(base, room) else { return };
        for (region, offset) in head.regions.iter().zip(offsets) {
            assert!(offset + region.bytes as usize <= room);
        }
        for arg in head.args.tensors.iter().filter(|arg| arg.tensor.bytes > 0) {
            let tensor = arg.tensor;
            assert!(tensor.addr >= base && tensor.addr - base + tensor.bytes <= room as u64);
            assert!(tensor.start_offset + tensor.extent <= tensor.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::trial::read_all;
    use super::*;
    use crate::{CallConfig, ChipArg};
    use proptest::prelude::*;
    use simpler_kernel_abi::{DEVICE_MEMORY, DType, SimplerTensor};

    fn host(addr: u64, bytes: u64, arg_use: ArgUse) -> ChipArg {
        ChipArg { tensor: SimplerTensor::whole(addr, bytes, DType::U8, HOST_MEMORY), arg_use }
    }

    fn head(tensors: Vec<ChipArg>, scalars: Vec<u64>) -> TaskHead {
        let config = CallConfig { output_prefix: Some("/a/prefix".into()), ..CallConfig::default() };
        let args = RunArgs { tensors, scalars, config };
        let regions = regions_of(&args).unwrap();
        TaskHead { callable: [7; 32], run_id: 5, dispatch_id: 6, args, regions }
    }

    /// Where the bytes of each tensor are after the way, as if the regions had been copied there.
    fn after_the_way(head: &TaskHead) -> (TaskHead, Vec<usize>) {
        let encoded = head.encode().unwrap();
        assert_eq!(u32::from_le_bytes(*encoded.first_chunk().unwrap()) as usize, encoded.len() - 4);
        let mut back = TaskHead::decode(&encoded[4..]).unwrap();
        let offsets = back.place(1 << 40, WINDOW_BYTES).unwrap();
        (back, offsets)
    }

    #[test]
    fn a_task_arrives_whole_with_tensors_where_its_data_go() {
        let sent = head(
            vec![
                host(0x10_0040, 0x100, ArgUse::Input),
                host(0x10_0100, 0x80, ArgUse::InOut),
                host(0x90_0000, 0x10, ArgUse::Input),
                host(0, 0, ArgUse::OutputExisting),
            ],
            vec![1, u64::MAX],
        );
        let regions = [
            Region { addr: 0x10_0040, bytes: 0x140, comes_back: true },
            Region { addr: 0x90_0000, bytes: 0x10, comes_back: false },
        ];
        assert_eq!(sent.regions, regions, "what overlaps is one");
        let (back, offsets) = after_the_way(&sent);
        assert_eq!((back.callable, back.run_id, back.dispatch_id), ([7; 32], 5, 6));
        assert_eq!((&back.args.scalars, &back.args.config), (&sent.args.scalars, &sent.args.config));
        assert_eq!(back.regions, regions);
        let at = |index: usize| back.args.tensors[index].tensor.addr - (1 << 40);
        assert_eq!([at(0), at(1)], [offsets[0] as u64, offsets[0] as u64 + 0xc0]);
        assert_eq!(at(2), offsets[1] as u64);
        assert!(offsets[1] >= offsets[0] + 0x140);
        assert_eq!(offsets[0] % ALIGNMENT, 0x40, "as far behind a page as it was");
    }

    #[test]
    fn what_means_nothing_elsewhere_is_not_sent() {
        let refused =
            |tensors: Vec<ChipArg>| regions_of(&RunArgs { tensors, ..RunArgs::default() }).unwrap_err();
        let device = SimplerTensor::whole(64, 8, DType::U8, DEVICE_MEMORY);
        let text =
            refused(vec![host(64, 8, ArgUse::Input), ChipArg { tensor: device, arg_use: ArgUse::Input }]);
        assert!(text.contains("tensor 1 is device memory of this host"), "{text}");
        let half = DATA_BYTES_MAX as u64 / 2;
        let text = refused(vec![host(0, half, ArgUse::Input), host(2 * half, half + 1, ArgUse::Input)]);
        assert!(text.contains("at most 268435456"), "{text}");
        assert!(refused(vec![host(u64::MAX, 2, ArgUse::Input)]).contains("ends beyond"));
    }

    #[test]
    fn a_length_beyond_the_bound_of_its_kind_is_refused_before_anything_is_read() {
        for (kind, most) in [
            (Kind::Hello, HELLO_BYTES_MAX),
            (Kind::Answer, CONTROL_BYTES_MAX),
            (Kind::Done, DATA_BYTES_MAX),
            (Kind::Task, 4 + HEAD_BYTES_MAX + DATA_BYTES_MAX),
        ] {
            let header = |bytes: usize| {
                let words = [kind as u32, bytes as u32].map(u32::to_le_bytes);
                parse_header(words.as_flattened().try_into().unwrap())
            };
            assert_eq!(header(most), Ok((kind, most)));
            assert!(header(most + 1).unwrap_err().contains(&format!("at most {most}")));
            assert!(header(u32::MAX as usize).is_err());
        }
        // What was announced and does not come is not waited for in memory of its size.
        let broken = read_bytes(&mut &b"abc"[..], DATA_BYTES_MAX).unwrap_err();
        assert_eq!(broken.to_string(), "the connection was closed");
    }

    #[test]
    fn regions_that_no_parent_makes_are_refused() {
        let sent = head(vec![host(0x1000, 0x100, ArgUse::Input)], vec![]);
        let with = |change: fn(&mut TaskHead)| {
            let mut sent = sent.clone();
            change(&mut sent);
            let mut back = TaskHead::decode(&sent.encode().unwrap()[4..])?;
            back.place(1 << 40, 1 << 20).map(drop)
        };
        assert_eq!(with(|_| ()), Ok(()));
        for (change, expected) in [
            ((|head| head.regions.clear()) as fn(&mut TaskHead), "lies in no memory"),
            (|head| head.regions[0].bytes -= 1, "lies in no memory"),
            (|head| head.regions[0].addr += 1, "lies in no memory"),
            (|head| head.regions[0].bytes = 1 << 40, "a region of"),
            (|head| head.regions[0].addr = u64::MAX, "a region of"),
            (|head| head.regions[0].bytes = 1 << 21, "of which there are 1048576"),
            (|head| head.regions = vec![head.regions[0]; REGIONS_MAX + 1], "at most 256"),
            (|head| head.args.tensors[0].tensor.extent = 0x101, "views more than"),
            (|head| head.args.tensors[0].tensor.address_space = DEVICE_MEMORY, "lies in no memory"),
        ] {
            let text = with(change).unwrap_err();
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn a_long_text_is_cut_and_a_failure_never_reads_as_success() {
        let failure = decode_failure(&encode_failure(0, &"ä".repeat(ERROR_TEXT_BYTES))).unwrap();
        // A character of two bytes does not fit in front of the tilde.
        assert_eq!((failure.code, failure.text.len()), (-1, ERROR_TEXT_BYTES - 1));
        assert!(failure.text.ends_with("ä~"));
        assert_eq!(decode_failure(&[0; 4]).unwrap().code, -1);
    }

    #[test]
    fn the_corpus_of_the_fuzzer_is_read() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/session_frame");
        let mut tasks = 0;
        for entry in std::fs::read_dir(corpus).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            read_all(&bytes);
            tasks += usize::from(TaskHead::decode(&bytes).is_ok());
        }
        assert!(tasks > 0, "a whole task is among them");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
            read_all(&bytes);
        }

        #[test]
        fn damaged_tasks_are_read(
            tensors in proptest::collection::vec((0_u64..1 << 16, 0_u64..5000), 0..4),
            scalars in proptest::collection::vec(any::<u64>(), 0..4),
            damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
            cut in proptest::option::of(any::<proptest::sample::Index>()),
        ) {
            let tensors = tensors.into_iter().map(|(addr, bytes)| host(addr, bytes, ArgUse::InOut)).collect();
            let whole = head(tensors, scalars).encode().unwrap();
            let mut bytes = whole[4..].to_vec();
            let undamaged = TaskHead::decode(&bytes).unwrap().place(1 << 40, 1 << 24).is_ok();
            prop_assert!(undamaged);
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            read_all(&bytes);
        }
    }
}
