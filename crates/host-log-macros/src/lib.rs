//! The messages of the log macros, taken apart when the program is compiled.
//!
//! `format_args!` leaves a message to be put together piece by piece through the formatting machinery, which costs a
//! text record more than everything else about it. Most messages hold nothing but `{}` and `{name}`: these become one
//! copy for each piece of text and one call for each value, which is known to be an integer or a string where it is
//! one. A message that asks for anything more goes through `format_args!`, and so does every message that is wrong,
//! so that the compiler says of it what it says of any other.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, LitStr, Token};

/// `write_message!([$crate] frame, "format", values...)` writes a message to `frame`, a `TextFrame`, and the mark of a
/// cut one if a value fails. `$crate` is the crate whose `__private` module has what this expands to.
#[proc_macro]
pub fn write_message(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    match syn::parse::<Input>(input) {
        Ok(input) => input.expand().into(),
        Err(error) => error.to_compile_error().into(),
    }
}

struct Input {
    home: TokenStream,
    frame: Ident,
    message: TokenStream,
}

impl Parse for Input {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let home;
        syn::bracketed!(home in input);
        let home = home.parse()?;
        let frame = input.parse()?;
        input.parse::<Token![,]>()?;
        Ok(Self { home, frame, message: input.parse()? })
    }
}

impl Input {
    fn expand(self) -> TokenStream {
        let Self { home, frame, message } = self;
        let mark = quote!(#frame.push(b"~"););
        let Some(Message { parts, values }) = Message::of(message.clone()) else {
            return quote! {
                if ::core::fmt::Write::write_fmt(&mut #frame, ::core::format_args!(#message)).is_err() { #mark }
            };
        };
        // Of a scope of their own, whatever the caller's variables are called.
        let name = |index| format_ident!("value_{index}", span = Span::mixed_site());
        let names: Vec<Ident> = (0..values.len()).map(name).collect();
        let steps = parts.into_iter().map(|part| match part {
            Part::Text(text) => {
                let text = syn::LitByteStr::new(text.as_bytes(), Span::call_site());
                quote!(#frame.push(#text);)
            }
            Part::Value(of) => {
                let value = match of {
                    Of::Variable(name) => quote!(&#name),
                    Of::Place(index) => {
                        let name = &names[index];
                        quote!(#name)
                    }
                };
                quote! {
                    if (&#home::__private::Value(#value)).put(&mut #frame).is_err() {
                        #mark
                        break 'message;
                    }
                }
            }
        });
        // The values are evaluated once, in their order, and live until all is written, as with `format_args!`.
        quote! {
            match (#(&(#values),)*) {
                (#(#names,)*) => {
                    #[allow(unused_imports)]
                    use #home::__private::{PutDisplay as _, PutPlain as _};
                    #[allow(unused_labels)]
                    'message: {
                        #(#steps)*
                    }
                }
            }
        }
    }
}

/// A message that holds nothing but text, `{}` and `{name}`.
struct Message {
    parts: Vec<Part>,
    values: Vec<Expr>,
}

#[derive(Debug, PartialEq)]
enum Part {
    Text(String),
    Value(Of),
}

/// Which value is meant.
#[derive(Debug, PartialEq)]
enum Of {
    Place(usize),
    Variable(Ident),
}

impl Message {
    /// `None` where it is anything more, or wrong.
    fn of(message: TokenStream) -> Option<Self> {
        let parser = |input: ParseStream<'_>| {
            let format: LitStr = input.parse()?;
            let values = if input.is_empty() {
                Punctuated::new()
            } else {
                input.parse::<Token![,]>()?;
                Punctuated::<Expr, Token![,]>::parse_terminated(input)?
            };
            Ok((format, values))
        };
        let (format, values) = parser.parse2(message).ok()?;
        let values: Vec<Expr> = values.into_iter().collect();
        // A value with a name.
        if values.iter().any(|value| matches!(value, Expr::Assign(_))) {
            return None;
        }
        let (parts, places) = parts(&format.value(), format.span())?;
        (places == values.len()).then_some(Self { parts, values })
    }
}

/// The parts of a format string, and how many values it takes by their places.
fn parts(format: &str, span: Span) -> Option<(Vec<Part>, usize)> {
    let (mut parts, mut text, mut places) = (Vec::new(), String::new(), 0);
    let mut rest = format.chars();
    while let Some(next) = rest.next() {
        match next {
            '{' | '}' if rest.as_str().starts_with(next) => {
                rest.next();
                text.push(next);
            }
            '{' => {
                let (name, behind) = rest.as_str().split_once('}')?;
                rest = behind.chars();
                let of = if name.is_empty() {
                    places += 1;
                    Of::Place(places - 1)
                } else {
                    Of::Variable(variable(name, span)?)
                };
                if !text.is_empty() {
                    parts.push(Part::Text(core::mem::take(&mut text)));
                }
                parts.push(Part::Value(of));
            }
            '}' => return None,
            other => text.push(other),
        }
    }
    if !text.is_empty() {
        parts.push(Part::Text(text));
    }
    Some((parts, places))
}

/// The variable called `name`, looked up where the message was written.
fn variable(name: &str, span: Span) -> Option<Ident> {
    // The parser would pass over blanks, and `format_args!` does not.
    if name.contains(char::is_whitespace) {
        return None;
    }
    let name = syn::parse_str::<Ident>(name).ok()?;
    Some(Ident::new(&name.to_string(), span))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Part {
        Part::Text(text.to_owned())
    }

    fn named(name: &str) -> Part {
        Part::Value(Of::Variable(Ident::new(name, Span::call_site())))
    }

    fn place(index: usize) -> Part {
        Part::Value(Of::Place(index))
    }

    #[test]
    fn a_plain_message_is_taken_apart() {
        let message = Message::of(quote!("task {number} of {{{}}} took {}\n", total(), 7 * pages)).unwrap();
        let parts =
            [text("task "), named("number"), text(" of {"), place(0), text("} took "), place(1), text("\n")];
        assert_eq!((message.parts.as_slice(), message.values.len()), (parts.as_slice(), 2));
        assert_eq!(Message::of(quote!("done")).unwrap().parts, [text("done")]);
        assert_eq!(Message::of(quote!("{}", x,)).unwrap().parts, [place(0)]);
        assert_eq!(Message::of(quote!("")).unwrap().parts, []);
    }

    #[test]
    fn what_is_more_or_wrong_is_left_to_the_compiler() {
        for message in [
            quote!("{:?}", x),
            quote!("{0}", x),
            quote!("{x:>8}"),
            quote!("{ x }"),
            quote!("{x}", x = 3),
            quote!("{} {}", x),
            quote!("none", x),
            quote!("{"),
            quote!("}"),
            quote!("{type}"),
            quote!(concat!("a", "b")),
            quote!(x),
            quote!(),
        ] {
            assert!(Message::of(message.clone()).is_none(), "{message}");
        }
    }
}
