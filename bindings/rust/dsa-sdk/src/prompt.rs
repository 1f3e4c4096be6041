//! Messages being put together.

use crate::codes::Role;
use crate::error::Error;
use crate::image::Image;
use crate::raw;
use crate::runtime::{Model, Runtime};
use crate::session::Session;
use crate::values::PromptCost;
use std::sync::Arc;

/// A builder. The same prompt may be used for several runs, sessions and models.
///
/// It may go to another thread, but is not shared between threads:
/// ```compile_fail,E0277
/// fn needs_sync<T: Sync>() {}
/// needs_sync::<dsa_sdk::Prompt>();
/// ```
pub struct Prompt {
    pub(crate) raw: raw::Prompt,
    _runtime: Arc<raw::Runtime>,
}

impl Prompt {
    pub fn new(runtime: &Runtime) -> Result<Self, Error> {
        Self::with(&runtime.raw)
    }

    pub(crate) fn with(runtime: &Arc<raw::Runtime>) -> Result<Self, Error> {
        Ok(Prompt { raw: raw::Prompt::new(runtime)?, _runtime: runtime.clone() })
    }

    /// A message of the system.
    pub fn system(self, text: &str) -> Result<Self, Error> {
        self.message(Role::System)?.text(text)
    }

    /// A message of the user. Control tokens in it stay plain text.
    pub fn user(self, text: &str) -> Result<Self, Error> {
        self.message(Role::User)?.text(text)
    }

    /// A message of the assistant.
    pub fn assistant(self, text: &str) -> Result<Self, Error> {
        self.message(Role::Assistant)?.text(text)
    }

    /// Begins a message; what follows adds to it.
    pub fn message(mut self, role: Role) -> Result<Self, Error> {
        self.raw.message(role.code())?;
        Ok(self)
    }

    /// Adds plain text from anywhere.
    pub fn text(mut self, text: &str) -> Result<Self, Error> {
        self.raw.text(text)?;
        Ok(self)
    }

    /// Adds text that you wrote yourself: control tokens in it act. Never pass user input.
    pub fn markup(mut self, text: &str) -> Result<Self, Error> {
        self.raw.markup(text)?;
        Ok(self)
    }

    /// Shows a picture at this place of the message. The prompt keeps it.
    pub fn image(mut self, image: &Image) -> Result<Self, Error> {
        self.raw.image(&image.raw)?;
        Ok(self)
    }

    /// Gives a picture to the parts of chat JSON that name it as their url. Nothing is ever fetched.
    pub fn bind_image(mut self, name: &str, image: &Image) -> Result<Self, Error> {
        self.raw.bind_image(name, &image.raw)?;
        Ok(self)
    }

    /// Adds raw tokens.
    pub fn tokens(mut self, tokens: &[i32]) -> Result<Self, Error> {
        self.raw.tokens(tokens)?;
        Ok(self)
    }

    /// Adds a message list in the widespread chat JSON.
    pub fn json(mut self, json: &str) -> Result<Self, Error> {
        self.raw.json(json)?;
        Ok(self)
    }

    /// Makes it empty again.
    pub fn clear(&mut self) -> Result<(), Error> {
        self.raw.clear()
    }

    /// What it would cost, appended to a session or alone.
    pub fn measure(&self, model: &Model, session: Option<&Session>) -> Result<PromptCost, Error> {
        self.raw.measure(&model.raw, session.map(|s| &s.raw), |c| PromptCost {
            text_tokens: c.text_tokens,
            image_tokens: c.image_tokens,
            num_tokens: c.num_tokens,
            reusable_tokens: c.reusable_tokens,
            fits: c.fits != 0,
            prefill_seconds: c.prefill_seconds,
        })
    }

    /// The text that the model would see, control tokens by name.
    pub fn render(&self, model: &Model) -> Result<String, Error> {
        self.raw.render(&model.raw)
    }
}
