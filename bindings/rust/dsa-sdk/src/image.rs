//! Pictures, and the long operation of encoding one ahead of its question.

use crate::error::Error;
use crate::raw::{self, Ref};
use crate::runtime::{milliseconds, path_bytes, Model, Runtime};
use crate::values::Progress;
use dsa_sdk_sys as sys;
use std::path::Path;
use std::time::Duration;

/// How the channels of a pixel lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PixelFormat {
    Rgb8,
    Rgba8,
    Bgra8,
    Bgr8,
    Gray8,
}

impl PixelFormat {
    fn code(self) -> i32 {
        match self {
            PixelFormat::Rgb8 => sys::DSA_PIXELS_RGB8,
            PixelFormat::Rgba8 => sys::DSA_PIXELS_RGBA8,
            PixelFormat::Bgra8 => sys::DSA_PIXELS_BGRA8,
            PixelFormat::Bgr8 => sys::DSA_PIXELS_BGR8,
            PixelFormat::Gray8 => sys::DSA_PIXELS_GRAY8,
        }
    }

    fn bytes(self) -> usize {
        match self {
            PixelFormat::Gray8 => 1,
            PixelFormat::Rgb8 | PixelFormat::Bgr8 => 3,
            PixelFormat::Rgba8 | PixelFormat::Bgra8 => 4,
        }
    }
}

/// Pixels in memory.
#[derive(Clone, Copy, Debug)]
pub struct Pixels<'a> {
    data: &'a [u8],
    width: u32,
    height: u32,
    format: PixelFormat,
    stride: Option<usize>,
    orientation: i32,
}

impl<'a> Pixels<'a> {
    pub fn new(data: &'a [u8], width: u32, height: u32, format: PixelFormat) -> Self {
        Pixels { data, width, height, format, stride: None, orientation: 0 }
    }

    /// Bytes from row to row, if they do not follow each other.
    #[must_use]
    pub fn stride(mut self, bytes: usize) -> Self {
        self.stride = Some(bytes);
        self
    }

    /// EXIF 1 to 8.
    #[must_use]
    pub fn orientation(mut self, exif: i32) -> Self {
        self.orientation = exif;
        self
    }

    /// The C struct, if all rows lie inside of the data.
    fn checked(&self) -> Result<sys::dsa_pixels, Error> {
        let row = (self.width as usize).checked_mul(self.format.bytes());
        let stride = self.stride.or(row);
        let before = (self.height as usize).saturating_sub(1);
        let needed = match (row, stride) {
            (Some(row), Some(stride)) => before.checked_mul(stride).and_then(|bytes| bytes.checked_add(row)),
            _ => None,
        };
        if needed.map_or(true, |bytes| bytes > self.data.len()) {
            let Pixels { width, height, format, .. } = self;
            let found = self.data.len();
            let text = format!("{width} x {height} pixels of {format:?} do not lie in {found} bytes");
            return Err(Error::argument(text));
        }
        let mut pixels = sys::dsa_pixels::init();
        pixels.data = self.data.as_ptr().cast();
        pixels.width = self.width;
        pixels.height = self.height;
        pixels.stride = stride.unwrap_or(0);
        pixels.format = self.format.code();
        pixels.orientation = self.orientation;
        Ok(pixels)
    }
}

/// Limits of a picture.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImageOptions {
    max_side: u32,
    refuse_too_large: bool,
    max_encoded_bytes: u64,
    max_pixels: u64,
}

impl ImageOptions {
    /// All defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// A larger side is shrunk to this.
    #[must_use]
    pub fn max_side(mut self, pixels: u32) -> Self {
        self.max_side = pixels;
        self
    }

    /// Refuses instead of shrinking.
    #[must_use]
    pub fn refuse_too_large(mut self) -> Self {
        self.refuse_too_large = true;
        self
    }

    #[must_use]
    pub fn max_encoded_bytes(mut self, bytes: u64) -> Self {
        self.max_encoded_bytes = bytes;
        self
    }

    #[must_use]
    pub fn max_pixels(mut self, pixels: u64) -> Self {
        self.max_pixels = pixels;
        self
    }

    fn filled(&self) -> sys::dsa_image_options {
        let mut options = sys::dsa_image_options::init();
        options.max_side = self.max_side;
        options.refuse_too_large = self.refuse_too_large.into();
        options.max_encoded_bytes = self.max_encoded_bytes;
        options.max_pixels = self.max_pixels;
        options
    }
}

/// A picture, decoded and upright. It may be shown in many prompts; equal pictures have equal ids.
#[derive(Clone)]
pub struct Image {
    pub(crate) raw: Ref<sys::dsa_image>,
}

impl Image {
    /// Reads a picture file.
    pub fn open(runtime: &Runtime, path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_with(runtime, path, &ImageOptions::default())
    }

    pub fn open_with(
        runtime: &Runtime,
        path: impl AsRef<Path>,
        options: &ImageOptions,
    ) -> Result<Self, Error> {
        let path = path_bytes(path.as_ref())?;
        Ok(Image { raw: raw::image_from_file(&runtime.raw, path, &options.filled())? })
    }

    /// Reads the content of a picture file.
    pub fn decode(runtime: &Runtime, data: &[u8], options: &ImageOptions) -> Result<Self, Error> {
        Ok(Image { raw: raw::image_from_memory(&runtime.raw, data, &options.filled())? })
    }

    /// Copies pixels.
    pub fn from_pixels(
        runtime: &Runtime,
        pixels: &Pixels<'_>,
        options: &ImageOptions,
    ) -> Result<Self, Error> {
        Ok(Image { raw: raw::image_from_pixels(&runtime.raw, &pixels.checked()?, &options.filled())? })
    }

    /// Width and height, upright.
    pub fn size(&self) -> Result<(u32, u32), Error> {
        raw::image_size(&self.raw)
    }

    /// A hash of size and pixels.
    pub fn id(&self) -> Result<String, Error> {
        raw::image_id(&self.raw)
    }

    /// Encodes it for a model ahead of the question, while nothing else is to do.
    pub fn prepare(&self, model: &Model) -> Result<Operation, Error> {
        Ok(Operation { raw: raw::Operation::prepare(&self.raw, &model.raw)? })
    }
}

/// Something long that goes on in the library. Dropping it stops it, and never waits.
pub struct Operation {
    raw: raw::Operation,
}

impl Operation {
    /// `None` waits for ever. Answers the progress if the time passed first, nothing when it is done.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<Progress>, Error> {
        self.raw.wait(milliseconds(timeout))
    }

    pub fn cancel(&self) -> Result<(), Error> {
        self.raw.cancel()
    }
}
