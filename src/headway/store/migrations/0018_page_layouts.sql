-- What people arranged on the page and share with everybody who sees this server: searches with their columns, and per
-- experiment which charts are pinned and how they are drawn.
CREATE TABLE page_layouts (
  kind       TEXT NOT NULL,              -- view: a search of the table; charts: of an experiment
  name       TEXT NOT NULL,              -- of the view, or the experiment
  data       TEXT NOT NULL,              -- JSON, as the page wrote it
  updated_ns INTEGER NOT NULL,
  PRIMARY KEY (kind, name)
) WITHOUT ROWID;
