//! Chat prompts by the template that a model brings along (Jinja, as Hugging Face renders it).

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind as JinjaErrorKind, context};

use crate::Error;
use crate::error::ErrorKind;

/// A model's chat template with the special tokens that it may name.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    /// The template's source.
    pub source: String,
    /// Text of the token that begins a sequence; empty if there is none.
    pub bos_token: String,
    /// Text of the token that ends one; empty if there is none.
    pub eos_token: String,
}

impl ChatTemplate {
    /// One user message, and the opening of the assistant's answer. Tokenize it with special tokens parsed.
    ///
    /// # Errors
    /// If the template uses what is not supported, or refuses the conversation.
    pub fn user_prompt(&self, message: &str) -> Result<String, Error> {
        let mut environment = Environment::new();
        // As Hugging Face sets up Jinja for these templates.
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|error| ErrorKind::Chat(error.to_string()))?;
        environment.set_syntax(syntax);
        environment.add_function("raise_exception", |text: String| -> Result<String, minijinja::Error> {
            Err(minijinja::Error::new(JinjaErrorKind::InvalidOperation, text))
        });
        environment
            .render_str(
                &self.source,
                context! {
                    messages => [context! { role => "user", content => message }],
                    add_generation_prompt => true,
                    bos_token => self.bos_token.as_str(),
                    eos_token => self.eos_token.as_str(),
                },
            )
            .map_err(|error| ErrorKind::Chat(error.to_string()).into())
    }
}
