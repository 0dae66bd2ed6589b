/**
 * Bundles the page of a hub's service, for which there is no JupyterLab to load it: `node page.mjs`, after tsc. The
 * bundler is the one that builds the extension; see docs/decisions/0012-the-page.md.
 */
import { readFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import { rspack } from '@rspack/core';
import { LicenseWebpackPlugin } from 'license-webpack-plugin';

const here = dirname(fileURLToPath(import.meta.url));

// Lumino's packages come without the text of their licence, which has the words of ours.
const lumino = readFileSync(resolve(here, '../LICENSE'), 'utf8').replace(
  /^Copyright .*$/m,
  'Copyright (c) 2014-2017, PhosphorJS Contributors\nCopyright (c) Project Jupyter Contributors'
);
const ofLumino = ['@lumino/algorithm', '@lumino/coreutils', '@lumino/signaling'];

const compiler = rspack({
  context: here,
  mode: 'production',
  // What the page's own policy forbids, such as eval, no map may need.
  devtool: false,
  entry: { page: ['./lib/page/index.js', './style/page.css'] },
  output: {
    path: resolve(here, '../jupyter_gpu/page'),
    filename: '[name].js',
    cssFilename: '[name].css',
    clean: true
  },
  module: { rules: [{ test: /\.css$/, type: 'css' }] },
  // Whoever opens the page has no old browser: JupyterLab and the hub ask for as much.
  target: ['web', 'es2020'],
  performance: { hints: false },
  plugins: [
    new LicenseWebpackPlugin({
      outputFilename: 'page.js.LICENSE.txt',
      perChunkOutput: false,
      additionalModules: ofLumino.map(name => ({
        name,
        directory: resolve(here, 'node_modules', name)
      })),
      licenseTextOverrides: Object.fromEntries(ofLumino.map(name => [name, lumino]))
    })
  ]
});

compiler.run((error, stats) => {
  if (error || stats.hasErrors()) {
    console.error(error ?? stats.toString('errors-only'));
    process.exitCode = 1;
  } else {
    console.log(stats.toString({ preset: 'errors-warnings', assets: true, colors: false }));
  }
  compiler.close(() => undefined);
});
