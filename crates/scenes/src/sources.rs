//! The C sources of the scenes, as built in.

use simpler_kernel_abi::CoreKind;
use simpler_kernel_compiler::{CallableSource, KernelSource, SourceFile};

use CoreKind::{Aic, Aiv};

macro_rules! file {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../kernels/scenes/", $name)))
    };
}

type File = (&'static str, &'static str);

/// A callable: its orchestration and its kernels by index, which the orchestration numbers in this order.
struct Files {
    orchestration: File,
    kernels: &'static [(File, CoreKind)],
}

/// What any source may include.
const HEADERS: [File; 3] = [file!("views.h"), file!("fused_rows.h"), file!("fused_relu.h")];

const CALLABLES: [(&str, Files); 5] = [
    ("vector_add", Files { orchestration: file!("vector_add.c"), kernels: &[(file!("add.c"), Aiv)] }),
    (
        "matmul_tiles",
        Files { orchestration: file!("matmul_tiles.c"), kernels: &[(file!("multiply_add.c"), Aic)] },
    ),
    ("softmax", Files { orchestration: file!("softmax.c"), kernels: &[(file!("softmax_rows.c"), Aiv)] }),
    (
        "paged_attention",
        Files {
            orchestration: file!("paged_attention.c"),
            kernels: &[
                (file!("page_scores.c"), Aic),
                (file!("page_softmax.c"), Aiv),
                (file!("page_values.c"), Aic),
                (file!("page_merge.c"), Aiv),
            ],
        },
    ),
    (
        "fused_matmul",
        Files {
            orchestration: file!("fused_matmul.c"),
            kernels: &[
                (file!("fused_product.c"), Aic),
                (file!("fused_relu_even.c"), Aiv),
                (file!("fused_relu_odd.c"), Aiv),
            ],
        },
    ),
];

/// The callable of a scene.
pub(crate) fn callable(name: &str) -> CallableSource {
    let (_, files) = CALLABLES.iter().find(|(of, _)| *of == name).expect("every scene has a callable");
    let source = |(name, text): File| SourceFile::new(name, text);
    let kernel = |(file, kind): &(File, CoreKind)| KernelSource { file: source(*file), kind: *kind };
    CallableSource {
        name: name.to_owned(),
        orchestration: source(files.orchestration),
        kernels: files.kernels.iter().map(kernel).collect(),
        headers: HEADERS.map(source).into(),
    }
}
