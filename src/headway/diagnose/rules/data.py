"""What is read: samples that cannot be decoded, checkpoints that do not fit or are damaged, files that are missing."""

from headway.diagnose.rule import EXCEPTION, PLAIN, ROOT, rule

_CHECKPOINT = "compare the model's configuration with the one the checkpoint was saved with"

RULES = (
    rule(
        "checkpoint_mismatch",
        r"Error\(s\) in loading state_dict|size mismatch for |Missing key\(s\) in state_dict"
        r"|Unexpected key\(s\) in state_dict"
        r"|loaded state dict (?:contains|has) a |different number of parameter groups"
        r"|used a DP world size of"
        r"|checkpoint .*(?:does not|doesn't|not) match|[Uu]nexpected DP world size"
        r"|mismatch\w* .*checkpoint|checkpoint\W.*(?:mismatch|incompatible)"
        r"|Tensor name \"?\S+\"? not found in checkpoint|Key \S+ not found in checkpoint"
        r"|Assign requires shapes|value from checkpoint .*not equal"
        r"|(?:while|when) (?:the )?copying the parameter named|Cannot load .*state.?dict"
        r"|ignore_mismatched_sizes"
        r"|is not equal to the input argument value"
        r"|[Ll]ayer count mismatch|mismatch when loading weights|expected \d+ layers, found \d+ saved",
        "state_dict",
        "state dict",
        "size mismatch",
        "parameter group",
        "world size",
        "checkpoint",
        "assign requires",
        "copying the parameter",
        "mismatched_sizes",
        "input argument value",
        "mismatch when loading",
        "saved layers",
        confidence=0.94,
        role=ROOT,
        advice=_CHECKPOINT,
        unless=r"(?i)^\W*warning|some weights of|newly initialized|were not used when",
    ),
    rule(
        "checkpoint_mismatch",
        r"(?i)(?:tree|pytree|dict\w*) (?:structures?|keys) (?:do|does) not match"
        r"|restore\w* .*(?:not match|mismatch)"
        r"|(?:not match|mismatch|different).{0,60}(?:on-disk|saved|stored|restored) ",
        "not match",
        "mismatch",
        "different",
        confidence=0.84,
        fuzzy=True,
        where=EXCEPTION,
    ),
    rule(
        "checkpoint_mismatch",
        r"KeyError: '(?:model_state_dict|state_dict|optimizer_state_dict|optimizer|model|module"
        r"|lr_scheduler|ema|epoch)'$",
        "keyerror",
        confidence=0.62,
        where=EXCEPTION,
    ),
    rule(
        "checkpoint_truncated",
        r"PytorchStreamReader failed|failed finding central directory"
        r"|unexpected EOF, expected \d+ more bytes|pickle data was truncated"
        r"|invalid load key|Ran out of input|(?:Error while deserializing header"
        r"|SafetensorError).*(?:Incomplete|TooLarge|HeaderToo|InvalidHeader|incomplete|too large"
        r"|too small)"
        r"|MetadataIncompleteBuffer|InvalidHeaderDeserialization|truncated file: eof"
        r"|file signature not found|storage has wrong byte size"
        r"|unpickling stack underflow|file in archive is not in a subdirectory"
        r"|[Cc]heckpoint .*(?:corrupt|truncated|incomplete|damaged)"
        r"|(?:corrupt|truncated|incomplete)\w* (?:or invalid )?checkpoint|model file .*corrupt"
        r"|not a (?:valid )?zip ?(?:file|archive)"
        r"|Unable to load weights from (?:pytorch|the) checkpoint file",
        "streamreader",
        "central directory",
        "unexpected eof",
        "truncated",
        "invalid load key",
        "ran out of input",
        "deserializing",
        "safetensorerror",
        "metadataincomplete",
        "invalidheader",
        "file signature",
        "wrong byte size",
        "underflow",
        "subdirectory",
        "corrupt",
        "incomplete",
        "zip",
        "unable to load weights",
        confidence=0.92,
        role=ROOT,
        unless=r"(?i)image file is truncated|jpeg|parquet|truncated to|will be truncated"
        r"|truncation|overflowing|warning|sequence|dataloss",
    ),
    rule(
        "bad_sample",
        r"UnidentifiedImageError|cannot identify image file|image file is truncated"
        r"|[Tt]runcated File Read|broken data stream when reading image"
        r"|tarfile\.ReadError|Compressed file ended before|Parquet magic bytes not found"
        r"|Not a gzipped file|BadGzipFile|zlib\.error|lzma\.LZMAError"
        r"|DataLossError|corrupted record|InvalidDataError"
        r"|Invalid data found when processing input|LibsndfileError|Error opening .*(?:wav|flac"
        r"|mp3)"
        r"|ArrowInvalid|JSON parse error|ParserError|Error tokenizing data|!_src\.empty\(\)"
        r"|Decoding failed|DECORDError"
        r"|Image\.DecompressionBombError|Couldn't cast|[Cc]orrupt(?:ed)? (?:image|sample|record"
        r"|shard|data|video|audio|file|JPEG)"
        r"|(?<!JSON)(?<!Unicode)DecodeError|failed to decode|[Bb]ad (?:sample|record)|unexpected end of (?:data|file"
        r"|stream)|imread.*(?:can't|fail)",
        "image",
        "truncated",
        "broken data",
        "tarfile",
        "ended before",
        "magic bytes",
        "gzip",
        "zlib",
        "lzma",
        "dataloss",
        "corrupt",
        "invaliddata",
        "invalid data",
        "sndfile",
        "error opening",
        "arrowinvalid",
        "parse error",
        "parsererror",
        "tokenizing",
        "_src.empty",
        "decod",
        "decompressionbomb",
        "couldn't cast",
        "bad sample",
        "bad record",
        "unexpected end",
        "imread",
        confidence=0.9,
        role=ROOT,
        unless=r"(?i)checkpoint|pull image|ErrImage|docker|premature end of jpeg|libpng warning"
        r"|^\W*warning|yaml\.|config\w*\.(?:json|ya?ml)|toml",
    ),
    rule(
        "bad_sample",
        r"DatasetGeneration\w*Error",
        "datasetgeneration",
        confidence=0.8,
        where=EXCEPTION,
    ),
    rule(
        "bad_sample",
        r"(?i)(?:cannot|can't|could not|failed to|error while|unable to) (?:be )?(?:decode"
        r"|decoding|parse|parsing|read|load)\w*"
        r" .{0,40}(?:sample|record|row|image|video|audio|shard|example)",
        "decod",
        "pars",
        "read",
        "load",
        confidence=0.82,
        fuzzy=True,
        where=EXCEPTION,
        unless=r"(?i)state_dict|checkpoint|weights|config",
    ),
    rule(
        "missing_file",
        r"No (?:valid |saved |such )?checkpoints? (?:found|exist|in|available)"
        r"|Error no file named \S+|^sbatch: error: Unable to open file"
        r"|Failed to find any matching files"
        r"|(?:did not|didn't|does not) match any (?:files?|data)|No (?:data )?files? (?:found"
        r"|match)",
        "checkpoint",
        "matching files",
        "match any",
        "no file",
        "no data file",
        "unable to open file",
        confidence=0.86,
        fuzzy=True,
        where=EXCEPTION,
    ),
    rule(
        "bad_sample",
        r"UnicodeDecodeError|JSONDecodeError|invalid start byte",
        "unicodedecode",
        "jsondecode",
        "start byte",
        confidence=0.72,
        where=EXCEPTION,
    ),
    rule(
        "missing_file",
        r"FileNotFoundError|can't open file .*No such file|NotADirectoryError"
        r"|Unable to (?:synchronously )?open file .*(?:errno = 2\b|No such file)"
        r"|NotFoundError.*(?:No such file|does not exist)|\[Errno 2\]|NoSuchKey|NoSuchBucket"
        r"|does not appear to have (?:a file|files) named"
        r"|EntryNotFoundError|No such file or directory|404 Client Error|\(404\).*Not Found"
        r"|\(404\) when calling"
        r"|No such object|unable to open file",
        "filenotfound",
        "no such file",
        "notadirectory",
        "unable to open file",
        "unable to synchronously open",
        "notfounderror",
        "errno 2]",
        "nosuch",
        "does not appear to have",
        "entrynotfound",
        "404",
        "no such object",
        confidence=0.93,
        role=ROOT,
        where=EXCEPTION,
        unless=r"shared object|errno = (?:5|11|13|28|116)|LocalEntryNotFound",
    ),
    rule(
        "missing_file",
        r"^sbatch: error: Unable to open file|can't open file '[^']*': \[Errno 2\]"
        r"|fatal error: .*No such file|cannot (?:find|open|access|stat) .*: No such file",
        "can't open file",
        "no such file",
        "sbatch: error",
        confidence=0.9,
        role=ROOT,
        where=PLAIN,
        unless=r"cannot (?:access|stat)",
    ),
    rule(
        "missing_file",
        r"(?i)(?:cannot|can't|could not|couldn't|unable to|failed to) (?:find|locate"
        r"|open)\b.*(?:file|director|folder|dataset|checkpoint|path|/)"
        r"|(?:file|path|director\w+|folder|checkpoint|dataset)\b.{0,160}(?:does not exist"
        r"|doesn't exist|not found|not exist|is missing|must exist)"
        r"|is not a local folder and is not a valid model|(?:No|Found no) (?:checkpoints?|files?"
        r"|valid data|images|model) (?:found|in|matching)"
        r"|valid file .*found|/\S+ (?:does not exist|doesn't exist|not found)",
        "find",
        "locate",
        "open",
        "exist",
        "not found",
        "missing",
        "local folder",
        "found no",
        "no ",
        confidence=0.82,
        fuzzy=True,
        role=ROOT,
        where=EXCEPTION,
        unless=r"(?i)keyerror|attribute|module|interface|library|shared object"
        r"|config\w*exception|omegaconf|struct|image|repository|cuda|gpu"
        r"|column|key |not found in (?:checkpoint|axis)|registry|version|host|unused",
    ),
    rule(
        "missing_file",
        r": No such file or directory\s*$|: Not a directory$",
        "no such file",
        "not a directory",
        confidence=0.55,
        role=ROOT,
        where=PLAIN,
        unless=r"(?i)execve|env: |interpreter|shared object|warning",
    ),
)
