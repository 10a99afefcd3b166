//! The boot image of a kernel (`bzImage`): the ELF image is packed in it, and every installed kernel has one.
//!
//! Its header says where the packed part lies (Documentation/arch/x86/boot.rst: `setup_sects`, `payload_offset` and
//! `payload_length`, protocol 2.08 and newer). What is inside is the image without its symbols, with all sections that
//! are loaded; the kernel's list of relocations may follow it and is left out.

use std::fmt;
use std::io::{self, Read};

use hbbp_elf::byte_source::ByteSource;

/// Images of distributions unpack to 60 to 80 MiB.
const MAX_UNPACKED: u64 = 1 << 30;
/// No boot image is nearly as large.
const MAX_PACKED: u32 = 256 << 20;
/// Sectors of the real-mode code where the header says 0 (boot.rst, `setup_sects`).
const DEFAULT_SECTORS: u64 = 4;
const SECTOR: u64 = 512;

/// Why a file cannot be unpacked.
#[derive(Debug)]
pub enum BootImageError {
    /// It does not begin as a boot image does, or is older than the protocol 2.08 (Linux 2.6.26).
    NotBootImage,
    /// Its compression is unknown here.
    Packing(&'static str),
    /// It is truncated or damaged.
    Broken(io::Error),
}

impl fmt::Display for BootImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBootImage => f.write_str("not a kernel boot image"),
            Self::Packing(how) => write!(
                f,
                "compressed with {how}, which is not supported: use the kernel's scripts/extract-vmlinux"
            ),
            Self::Broken(error) => write!(f, "a damaged boot image: {error}"),
        }
    }
}

impl std::error::Error for BootImageError {}

/// Unpacks the ELF image of the kernel.
pub(crate) fn unpack_boot_image(source: &ByteSource) -> Result<ByteSource, BootImageError> {
    let (offset, len) = payload(source).ok_or(BootImageError::NotBootImage)?;
    let truncated = || BootImageError::Broken(io::ErrorKind::UnexpectedEof.into());
    let packed = source.read(offset, len).ok_or_else(truncated)?;
    let mut image = Vec::new();
    unpack(&packed, &mut image)?;
    Ok(ByteSource::Memory(image))
}

/// Where the packed image lies: offset and length in bytes.
fn payload(source: &ByteSource) -> Option<(u64, u64)> {
    const SETUP_SECTS: u64 = 0x1f1;
    const MAGIC: u64 = 0x202;
    const VERSION: u64 = 0x206;
    const PAYLOAD_OFFSET: u64 = 0x248;
    const PAYLOAD_LENGTH: u64 = 0x24c;
    /// The first version of the protocol with a payload.
    const FIRST: u16 = 0x208;

    let word = |at| Some(u32::from_le_bytes(source.read(at, 4)?.try_into().ok()?));
    let version = u16::from_le_bytes(source.read(VERSION, 2)?.try_into().ok()?);
    if source.read(MAGIC, 4)? != b"HdrS" || version < FIRST {
        return None;
    }
    let sectors = source.read(SETUP_SECTS, 1)?.first().copied().map(u64::from)?;
    let sectors = if sectors == 0 { DEFAULT_SECTORS } else { sectors };
    let len = word(PAYLOAD_LENGTH)?;
    let offset = (sectors + 1) * SECTOR + u64::from(word(PAYLOAD_OFFSET)?);
    (len <= MAX_PACKED).then_some((offset, u64::from(len)))
}

/// Unpacks by the magic numbers of arch/x86's `Kconfig` choices (`KERNEL_GZIP` and so on).
/// The build appends the unpacked length, which the readers take for the end of the stream or ignore.
fn unpack(packed: &[u8], image: &mut Vec<u8>) -> Result<(), BootImageError> {
    let unpacked = match packed {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => zstd::Decoder::with_buffer(packed)
            .map(zstd::Decoder::single_frame)
            .and_then(|reader| fill(reader, image)),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => fill(lzma_rust2::XzReader::new(packed, false), image),
        [0x1f, 0x8b, ..] => fill(flate2::read::GzDecoder::new(packed), image),
        [0x02, 0x21, 0x4c, 0x18, ..] => return Err(BootImageError::Packing("LZ4")),
        [0x89, b'L', b'Z', b'O', ..] => return Err(BootImageError::Packing("LZO")),
        [b'B', b'Z', b'h', ..] => return Err(BootImageError::Packing("bzip2")),
        [0x5d, 0, 0, ..] => return Err(BootImageError::Packing("LZMA")),
        [0x7f, b'E', b'L', b'F', ..] => fill(packed, image),
        _ => return Err(BootImageError::Packing("something new")),
    };
    unpacked.map_err(BootImageError::Broken)
}

fn fill(reader: impl Read, image: &mut Vec<u8>) -> io::Result<()> {
    reader.take(MAX_UNPACKED).read_to_end(image).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    const IMAGE: &[u8] = b"\x7fELF and the rest of a kernel, a kernel, a kernel";

    fn boot_image(packed: &[u8]) -> ByteSource {
        let mut bytes = vec![0; 0x400];
        bytes[0x1f1] = 1;
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        bytes[0x206..0x208].copy_from_slice(&0x20f_u16.to_le_bytes());
        let len = u32::try_from(packed.len()).expect("short") + 4;
        bytes[0x24c..0x250].copy_from_slice(&len.to_le_bytes());
        bytes.extend(packed);
        // The build appends the unpacked length.
        bytes.extend(u32::try_from(IMAGE.len()).expect("short").to_le_bytes());
        ByteSource::Memory(bytes)
    }

    fn unpacked(packed: &[u8]) -> Vec<u8> {
        let source = unpack_boot_image(&boot_image(packed)).expect("it is whole");
        source.read(0, source.len()).expect("all of it")
    }

    #[test]
    fn what_distributions_pack_with() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(IMAGE).expect("memory");
        assert_eq!(unpacked(&gzip.finish().expect("memory")), IMAGE);
        assert_eq!(unpacked(&zstd::encode_all(IMAGE, 1).expect("memory")), IMAGE);
        // xz --check=crc32 --x86 --lzma2, as the kernel's scripts/xz_wrap.sh packs.
        let xz = include_bytes!("image.xz");
        assert_eq!(unpacked(xz), IMAGE);
    }

    #[test]
    fn what_cannot_be_unpacked_is_named() {
        let error = |packed: &[u8]| unpack_boot_image(&boot_image(packed)).unwrap_err().to_string();
        assert!(error(&[0x02, 0x21, 0x4c, 0x18]).contains("LZ4"));
        let mut zstd = zstd::encode_all(IMAGE, 1).expect("memory");
        zstd.truncate(zstd.len() - 9);
        assert!(error(&zstd).contains("damaged"));
        for source in [Vec::new(), vec![0; 0x300], b"\x7fELF".to_vec()] {
            let error = unpack_boot_image(&ByteSource::Memory(source)).unwrap_err();
            assert!(matches!(error, BootImageError::NotBootImage));
        }
        let mut lying = boot_image(IMAGE);
        if let ByteSource::Memory(bytes) = &mut lying {
            bytes[0x24c..0x250].copy_from_slice(&0xffff_u32.to_le_bytes());
        }
        assert!(matches!(
            unpack_boot_image(&lying).unwrap_err(),
            BootImageError::Broken(_)
        ));
    }
}
